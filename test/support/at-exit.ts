const cleanups = new Set<() => void>();

/**
 * Ends something that this process has started, such as a server, when the process ends: by itself,
 * by a signal, or, in a worker of the test runner, because the runner is gone. `exit` alone is not
 * emitted on a signal.
 */
export function atExit(cleanup: () => void): void {
  cleanups.add(cleanup);
}

function cleanUp(): void {
  for (const cleanup of cleanups) cleanup();
  cleanups.clear();
}

process.once("exit", cleanUp);
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  const ended = () => {
    // Another listener ends the process in its own way, and then there is `exit`.
    if (process.listenerCount(signal) > 1) return;
    cleanUp();
    process.off(signal, ended);
    process.kill(process.pid, signal);
  };
  // Before a listener that is removed by its call, and would not be counted.
  process.prependListener(signal, ended);
}
// In another process a listener would keep the channel to its parent open.
if (process.env["VITEST"] !== undefined && process.connected) {
  process.once("disconnect", () => process.kill(process.pid, "SIGTERM"));
}
