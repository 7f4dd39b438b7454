import type { SimulatedRedis } from "../server/simulated-redis.ts";
import { isRecordKey, lockValue, ownerIdOf } from "../server/values.ts";
import type { Owners } from "./owners.ts";

/**
 * A replica has taken over: some locks are gone, some are back, some expire earlier.
 *
 * @param end tells that who was at a key is no longer.
 */
export function takeOver(
  owners: Owners,
  server: SimulatedRedis,
  now: number,
  end: (key: string) => void,
): void {
  for (const key of new Set([...owners.keys(), ...server.keys.names()])) {
    if (isRecordKey(key)) continue;
    const entry = server.keys.kept(key);
    const tenure = owners.current(key);
    const owner = entry && owners.of(ownerIdOf(entry.value), key);
    const stays = tenure !== undefined && tenure.owner === owner;
    if (!stays) end(key);
    if (entry === undefined || owner === undefined) continue;
    const value = lockValue(entry.value);
    const livesUntil = entry.expiresAt;
    const holder = value.kind === "freed" ? owners.get(value.ownerId) : owner;
    const isShorter = !stays || tenure.livesUntil !== livesUntil;
    if (isShorter && holder !== undefined && livesUntil !== undefined) {
      holder.securedUntil = server.goneAt(livesUntil);
    }
    if (stays) tenure.livesUntil = livesUntil;
    else {
      const risen = { isByWrongClock: false, isRisen: true };
      owners.tenures(key).push({ owner, value, from: now, to: undefined, livesUntil, ...risen });
    }
  }
}
