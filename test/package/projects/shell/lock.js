const { Redis } = require("ioredis");
const { RedisStore, SubmitLock } = require("submit-lock");

const redis = new Redis(process.env.REDIS_URL);
// As a compiler writes it for `export default`.
Object.defineProperty(exports, "__esModule", { value: true });
exports.redis = redis;
exports.default = new SubmitLock({ store: new RedisStore(redis), keyPrefix: "lock:shell:" });
