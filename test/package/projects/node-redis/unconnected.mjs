// The module of `--config` of a shop that connects when it serves.
import { createClient } from "redis";
import { RedisStore, SubmitLock } from "submit-lock";

export const redis = createClient({ url: process.env.SHOP_REDIS });
export default new SubmitLock({ store: new RedisStore(redis), keyPrefix: "lock:shop:" });
