import type {
  AcquireReply,
  LockRequest,
  LockStore,
  NoAnswer,
  OwnedReply,
  RedisClient,
} from "../../src/index.ts";
import type { IoredisClient } from "../../src/stores/redis/clients/ioredis.ts";

// The texts that version 0.1 sent: its values are bare UUIDs, and it compares them whole.

const prologue = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local replies = { now }
local wrote = false
local function failed(reply)
  return type(reply) == 'table' and reply.err ~= nil
end
`;

const epilogue = `
  if failed(reply) and not wrote then
    return reply
  end
  replies[i + 1] = reply
end
return replies
`;

/**
 * KEYS: one an entry.
 * ARGV[1] deadline: Redis' time, in ms, after which nothing is taken any more.
 * ARGV[2] window: how far before the deadline a copy may come, in ms; a copy that comes earlier was
 *   stamped by a wrong clock, and could take effect long after its caller has gone.
 * ARGV[3] life that is given to a foreign string without any expiry, in ms.
 * ARGV[4] life that is given to what is taken, in ms.
 * ARGV[5], ARGV[6], ...: the owner id of each entry.
 *
 * Returns the clock, then for each entry:
 *   -1 taken: it was free and in time, and holds the owner id now
 *   -2 mine: it held this owner id already; nothing was written, its life stays
 *   -3 refused: free, or just run out, but the copy was too late or too early; nothing was written
 *   -4 unusable: no string; nothing was written
 *   >= 0 contended: another value, and the ms that it has to live
 */
const acquireScript = `
${prologue}
local left = tonumber(ARGV[1]) - now
local in_time = left >= 0 and left <= tonumber(ARGV[2])
for i, key in ipairs(KEYS) do
  local owner_id = ARGV[4 + i]
  -- One call where the key is free. What SET says of a key that is held, or cannot do, is not what
  -- the caller wants to know. (Where GET alone is not permitted, it is the release that is refused:
  -- check() of the lock finds that at boot.)
  local reply = in_time and redis.pcall('SET', key, owner_id, 'PX', ARGV[4], 'NX')
  if reply and reply.ok then
    wrote = true
    reply = -1
  else
    local held = redis.pcall('GET', key)
    if held == owner_id then
      reply = -2
    elseif failed(held) then
      reply = held
      -- One key of another type must not fail its neighbours.
      if string.find(held.err, 'WRONGTYPE', 1, true) then
        reply = -4
      end
    elseif held then
      reply = redis.pcall('PTTL', key)
      -- A key of an old lock whose EXPIRE never came would block its user for ever.
      if not failed(reply) and reply < 0 then
        reply = redis.pcall('PEXPIRE', key, ARGV[3])
        if not failed(reply) then
          wrote = true
          reply = tonumber(ARGV[3])
        end
      end
    elseif not reply then
      reply = -3
    end
  end
${epilogue}
`;

/**
 * KEYS: one an entry. ARGV[1]: life in ms. ARGV[2], ARGV[3], ...: the owner id of each entry.
 *
 * Returns the clock, then for each entry: 1 lengthened to the full life (never shortened), 0 gone,
 * -1 foreign.
 */
const extendScript = `
${prologue}
local life = tonumber(ARGV[1])
for i, key in ipairs(KEYS) do
  local reply = -1
  local held = redis.pcall('GET', key)
  if held == ARGV[1 + i] then
    reply = redis.pcall('PTTL', key)
    -- An older extend that arrives late must not take life away from a newer one.
    if not failed(reply) and reply < life then
      reply = redis.pcall('PEXPIRE', key, ARGV[1])
      wrote = wrote or not failed(reply)
    end
    if not failed(reply) then
      reply = 1
    end
  elseif not held then
    reply = 0
  elseif failed(held) and not string.find(held.err, 'WRONGTYPE', 1, true) then
    reply = held
  end
${epilogue}
`;

/**
 * KEYS: one an entry. ARGV: the owner id of each entry.
 *
 * Returns the clock, then for each entry: 1 deleted, 0 gone, -1 foreign.
 */
const releaseScript = `
${prologue}
for i, key in ipairs(KEYS) do
  local reply = -1
  local held = redis.pcall('GET', key)
  if held == ARGV[i] then
    reply = redis.pcall('DEL', key)
    wrote = wrote or not failed(reply)
  elseif not held then
    reply = 0
  elseif failed(held) and not string.find(held.err, 'WRONGTYPE', 1, true) then
    reply = held
  end
${epilogue}
`;

/** How a process of version 0.1 speaks to Redis: the other half of a rolling deploy. */
export class StoreOf01 implements LockStore {
  readonly #client: RedisClient;

  constructor(client: RedisClient) {
    this.#client = client;
  }

  acquire(request: LockRequest<AcquireReply>): void {
    const { acquireTimeoutMs, maxHoldMs, ttlMs } = request.command.times;
    request.deadlineMs = Date.now() + acquireTimeoutMs;
    const args = [request.deadlineMs, 2 * acquireTimeoutMs, maxHoldMs, ttlMs];
    void this.#eval(request, acquireScript, args, (code, storeTimeMs): AcquireReply => {
      if (code >= 0) return { kind: "contended", expiresInMs: code, storeTimeMs };
      if (code === -1) return { kind: "taken", storeTimeMs };
      return code === -2 ? { kind: "mine", storeTimeMs } : { kind: "outOfWindow", storeTimeMs };
    });
  }

  extend(request: LockRequest<OwnedReply>): void {
    void this.#eval(request, extendScript, [request.command.times.ttlMs], ownedReply);
  }

  release(request: LockRequest<OwnedReply>): void {
    void this.#eval(request, releaseScript, [], ownedReply);
  }

  attach(): () => Promise<void> {
    return () => Promise.resolve();
  }

  async #eval<Reply>(
    request: LockRequest<Reply | NoAnswer>,
    script: string,
    args: number[],
    read: (code: number, storeTimeMs: number) => Reply,
  ): Promise<void> {
    const { key, ownerId } = request.command;
    const [now, code] = (await (this.#client as IoredisClient).eval(
      script,
      1,
      key,
      ...args,
      ownerId,
    )) as number[];
    request.answer(read(code as number, now as number));
  }
}

function ownedReply(code: number, storeTimeMs: number): OwnedReply {
  if (code === 1) return { kind: "done", storeTimeMs };
  return { kind: code === 0 ? "gone" : "foreign", storeTimeMs };
}
