import type { FromChild } from "./child.ts";

/** The other side of `Child`: says that it is ready, and does one job after the other. */
export function serveJobs<Job, Result, Hello>(
  hello: Hello,
  work: (job: Job) => Promise<Result>,
): void {
  const tell = (message: FromChild<Hello, Result>): void => void process.send?.(message);
  process.on("message", (job: Job) => {
    work(job).then(
      (result) => tell({ result }),
      (error: unknown) =>
        tell({ error: error instanceof Error ? (error.stack ?? error.message) : String(error) }),
    );
  });
  // Without its parent it has nothing to do.
  process.on("disconnect", () => process.exit());
  tell({ hello });
}
