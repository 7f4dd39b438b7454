import { Redis } from "ioredis";
import { RedisStore, SubmitLock } from "../../src/index.ts";
import { all } from "./frameworks.ts";
import { listen } from "./http-client.ts";
import { patientTimes } from "./shop.ts";

/**
 * A server process that ends right behind its first answer:
 * `exiting-shop.ts FRAMEWORK REDIS_PORT exit|abort ANSWER`.
 */
const [name, redisPort, how, answer] = process.argv.slice(2);
const framework = all.find((each) => each.name === name);
if (framework === undefined) throw new Error(`There is no framework ${name}.`);

const redis = new Redis(Number(redisPort), "127.0.0.1");
const server = framework.makeServer({
  lock: new SubmitLock({ store: new RedisStore(redis), ...patientTimes }),
  guard: { idempotency: {}, cooldownMs: 1_000 },
  handler: (turn) => {
    turn.byHand().end(answer);
    if (how === "abort") process.abort();
    process.exit();
  },
});
process.send?.({ port: await listen(server) });
process.once("disconnect", () => process.exit());
