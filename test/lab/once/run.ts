import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { spreadText, table } from "../../../bench/statistics.ts";
import { serverBinary, serverVersion } from "../../support/server-binary.ts";
import { installPeers, peerVersions } from "../install-peers.ts";
import { rows } from "./libraries.ts";
import { type Played, pageOf, tableOf } from "./page.ts";
import { crash, type Scenario, scenarios, type Trial } from "./scenarios.ts";
import { measureSpeed } from "./speed.ts";
import { Stage } from "./stage.ts";

/**
 * `npm run lab -- neighbours`: the same submissions against submit-lock and against idempotency
 * libraries. Writes docs/evidence/once-neighbours.md. With words on the command line, such as
 * `npm run lab -- neighbours plain`, only the rows whose words begin so are played, and nothing
 * is written. `--speed` measures the requests a second of those on Express instead, and prints them.
 */
const page = new URL("../../../docs/evidence/once-neighbours.md", import.meta.url);
const args = process.argv.slice(2);
const words = args.filter((word) => !word.startsWith("--"));
const trials = 10;
const crashUsers = 3;

installPeers("once/peers");
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
    (library) => words.length === 0 || words.some((word) => library.startsWith(word)),
  );
  const all: Played[] = [];
  const notRun: string[] = [];
  for (const library of chosen) {
    console.error(`${library} …`);
    try {
      all.push(await play(library));
    } catch (error) {
      notRun.push(`${library}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  console.log(tableOf(all));
  for (const failure of notRun) console.log(`NOT RUN: ${failure}`);
  if (words.length === 0 && notRun.length === 0) {
    mkdirSync(new URL(".", page), { recursive: true });
    const server = serverVersion(binary) ?? "an unknown server";
    const used = {
      express: versionOf("express"),
      ioredis: versionOf("ioredis"),
      ...peerVersions("once/peers"),
    };
    writeFileSync(page, pageOf(all, { trials, crashUsers, server, versions: used }));
    console.log("Written: docs/evidence/once-neighbours.md");
  }
  return notRun.length === 0 ? 0 : 1;
}

function versionOf(name: string): string {
  const file = createRequire(import.meta.url).resolve(`${name}/package.json`);
  return (JSON.parse(readFileSync(file, "utf8")) as { version: string }).version;
}

/** Every scenario against one library, one after the other, and the crash at the end. */
async function play(library: string): Promise<Played> {
  const stage = await Stage.open(library, binary);
  try {
    await stage.warmUp();
    const all = new Map<Scenario, Trial[]>();
    for (const scenario of scenarios) {
      const played: Trial[] = [];
      for (let trial = 0; trial < trials; trial++) {
        await stage.ensureShop();
        played.push(await scenario.play(stage));
      }
      all.set(scenario, played);
    }
    await stage.ensureShop();
    return {
      ...stage.hello,
      trials: all,
      crash: await crash(stage, crashUsers),
      ended: stage.ended,
    };
  } finally {
    await stage.close();
  }
}
