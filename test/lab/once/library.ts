/** A way to protect `POST /orders`, as the laboratory knows it: a shop in a process of its own. */
export interface Library {
  readonly name: string;
  /** How it is set up, for the page. */
  readonly settings: string;
  /** What is to be said of its result in a scenario, by the scenario's name. */
  readonly notes?: Readonly<Record<string, string>>;
  /** Resolves when the shop listens on 127.0.0.1:`port`. What it must not forget is in that Redis. */
  start(port: number, redisUrl: string): Promise<void>;
}

/** What a shop says of itself when it listens. */
export type Hello = Pick<Library, "name" | "settings" | "notes">;
