import type { ServerResponse } from "node:http";
import type { Call } from "./http-client.ts";

/** Something that a test waits for, or lets happen, at a moment of its own. */
export interface Gate {
  readonly opened: Promise<void>;
  open(): void;
}

export function gate(): Gate {
  let open: () => void = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

/** A client that leaves while the server is at work for it, which goes on when the client has left. */
export function departure(): {
  seenBy(res: ServerResponse): void;
  /** The work: begins now, and ends when the client has left. */
  during(): Promise<void>;
  of(call: Call): Promise<void>;
} {
  const [started, left, goOn] = [gate(), gate(), gate()];
  return {
    seenBy: (res) => void res.once("close", left.open),
    during() {
      started.open();
      return goOn.opened;
    },
    async of(call) {
      await started.opened;
      call.abort();
      await left.opened;
      goOn.open();
    },
  };
}
