import { type ChildProcess, fork, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { atExit } from "./support/at-exit.ts";
import { suite } from "./support/suite.ts";

/**
 * `npm run lab -- busy`: the whole suite beside processes that burn the processors, as on a machine
 * that has other things to do. Arguments go to vitest. Its bound is twelve minutes.
 */
const burnerCount = 4;
const boundMs = 12 * 60_000;

const self = fileURLToPath(import.meta.url);

if (process.argv[2] === "burn") {
  // Nobody is there any more who would end it.
  process.once("disconnect", () => process.exit());
  burn();
} else process.exitCode = await runBeside(process.argv.slice(2));

function burn(): void {
  const end = performance.now() + 50;
  while (performance.now() < end);
  setImmediate(burn);
}

async function runBeside(args: readonly string[]): Promise<number> {
  const burners = Array.from({ length: burnerCount }, () => fork(self, ["burn"]));
  atExit(() => end(burners));
  const tests = spawn(process.execPath, [...suite, ...args], {
    stdio: ["ignore", "inherit", "inherit"],
    timeout: boundMs,
  });
  atExit(() => void tests.kill());
  const from = performance.now();
  const [code] = await once(tests, "close");
  end(burners);
  const seconds = Math.round((performance.now() - from) / 1_000);
  const outcome = code === 0 ? "green" : code === null ? "not over in time" : "not green";
  console.log(`${outcome} after ${seconds} s beside ${burnerCount} processes that burn.`);
  return code === 0 ? 0 : 1;
}

function end(burners: readonly ChildProcess[]): void {
  for (const burner of burners) burner.kill("SIGKILL");
}
