import lock, { redis } from "./unconnected.mjs";

await redis.on("error", console.error).connect();

export { lock as default, redis };
