import { Redis } from "ioredis";
import { RedisStore, SubmitLock } from "submit-lock";
import { createApp } from "./app.js";

const { PAYMENTS_URL, PORT, REDIS_URL } = process.env;

const redis = new Redis(REDIS_URL);
const lock = new SubmitLock({ store: new RedisStore(redis) });
await lock.check({ submissions: true });

const pay = async (signal) => (await fetch(PAYMENTS_URL, { method: "POST", signal })).json();
createApp({ redis, lock, pay }).listen(Number(PORT), "127.0.0.1");
