import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { spreadText, table } from "../../../bench/text.ts";
import { serverBinary, serverVersion } from "../../support/server-binary.ts";
import { rows } from "./libraries.ts";
import { pageOf, tableOf } from "./page.ts";
import { installPeers, versions } from "./peers/install.ts";
import { type Played, play } from "./play.ts";
import { measureSpeed } from "./speed.ts";

/**
 * `npm run lab -- neighbours`: the same submissions against submit-lock and against idempotency
 * libraries. Writes docs/evidence/once-neighbours.md. With words on the command line, such as
 * `npm run lab -- neighbours plain`, only the rows whose file names begin so are played, and nothing
 * is written. `--speed` measures the requests a second of those on Express instead, and prints them.
 */
const page = new URL("../../../docs/evidence/once-neighbours.md", import.meta.url);
const args = process.argv.slice(2);
const words = args.filter((word) => !word.startsWith("--"));
const trials = 10;
const crashUsers = 3;

installPeers();
const binary = serverBinary();
process.exitCode = args.includes("--speed") ? await showSpeed() : await playAll();

async function showSpeed(): Promise<number> {
  const rows = (await measureSpeed({ binary })).map((row) => [
    row.name,
    spreadText(row.fresh, 0),
    spreadText(row.freshRatio),
    spreadText(row.replay, 0),
    spreadText(row.replayRatio),
  ]);
  console.log(table(["", "fresh orders/s", "of bare", "replays/s", "of bare"], rows));
  return 0;
}

async function playAll(): Promise<number> {
  const chosen = rows.filter(
    (module) => words.length === 0 || words.some((word) => fileOf(module).startsWith(word)),
  );
  const all: Played[] = [];
  const notRun: string[] = [];
  for (const module of chosen) {
    console.error(`${fileOf(module)} …`);
    try {
      all.push(await play(module, { binary, trials, crashUsers }));
    } catch (error) {
      notRun.push(`${fileOf(module)}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  console.log(tableOf(all));
  for (const failure of notRun) console.log(`NOT RUN: ${failure}`);
  if (words.length === 0 && notRun.length === 0) {
    mkdirSync(new URL(".", page), { recursive: true });
    const server = serverVersion(binary) ?? "an unknown server";
    const used = { express: versionOf("express"), ioredis: versionOf("ioredis"), ...versions() };
    writeFileSync(page, pageOf(all, { trials, crashUsers, server, versions: used }));
    console.log("Written: docs/evidence/once-neighbours.md");
  }
  return notRun.length === 0 ? 0 : 1;
}

function fileOf(module: URL): string {
  return module.pathname.split("/").at(-1) ?? "";
}

function versionOf(name: string): string {
  const file = createRequire(import.meta.url).resolve(`${name}/package.json`);
  return (JSON.parse(readFileSync(file, "utf8")) as { version: string }).version;
}
