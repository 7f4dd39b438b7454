import { ownLibraries } from "./libraries.ts";
import type { Hello } from "./shop.ts";

/** One shop in a process of its own: `server.ts LIBRARY PORT REDIS-URL`. */
const [word = "", port, redisUrl = ""] = process.argv.slice(2);

// Nobody is there any more who would end it.
process.once("disconnect", () => process.exit());
const library = ownLibraries[word] ?? (await import("./peers/libraries.ts")).peers[word];
if (library === undefined) throw new Error(`There is no library "${word}".`);
await library.start(Number(port), redisUrl);
const { name, settings, notes } = library;
const hello: Hello = { name, settings, ...(notes && { notes }) };
process.send?.(hello);
