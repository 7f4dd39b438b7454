import { runExample } from "../../docs/examples/run-example.ts";

/** `npm run demo`, without npm: what is ended is then the demo itself. */
export interface RunningDemo {
  readonly url: string;
  output(): string;
  end(): Promise<number | string>;
}

/** @param env what is set beside the environment of this process. */
export async function startDemo(file: string, env: NodeJS.ProcessEnv = {}): Promise<RunningDemo> {
  const demo = runExample(file, { env: { PORT: "0", ...env } });
  const [, url = ""] = await demo.prints(/(http:\/\/127\.0\.0\.1:\d+)\n[\s\S]*it is your turn/);
  return {
    url,
    output: () => demo.output(),
    async end() {
      demo.kill("SIGTERM");
      return await demo.ended;
    },
  };
}
