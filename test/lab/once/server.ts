import type { Hello, Library } from "./library.ts";

/** One shop in a process of its own: `server.ts MODULE PORT REDIS-URL`. */
const [module = "", port, redisUrl = ""] = process.argv.slice(2);

// Nobody is there any more who would end it.
process.once("disconnect", () => process.exit());
const { library } = (await import(module)) as { library: Library };
await library.start(Number(port), redisUrl);
const { name, settings, notes } = library;
const hello: Hello = { name, settings, ...(notes && { notes }) };
process.send?.(hello);
