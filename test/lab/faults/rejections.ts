/** What nobody caught while the lab ran. */
export class UncaughtRecorder {
  readonly #seen: string[] = [];
  readonly #note = (error: unknown): void => {
    this.#seen.push(error instanceof Error ? `${error.name}: ${error.message}` : String(error));
  };

  start(): void {
    process.on("unhandledRejection", this.#note);
    process.on("uncaughtException", this.#note);
  }

  stop(): void {
    process.off("unhandledRejection", this.#note);
    process.off("uncaughtException", this.#note);
  }

  /** What came since the last call. */
  take(): string[] {
    return this.#seen.splice(0);
  }
}
