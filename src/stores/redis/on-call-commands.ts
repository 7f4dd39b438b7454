import {
  type FreeReply,
  type FreeRequest,
  type Inspection,
  type InspectReply,
  type InspectRequest,
  longestCooldownMs,
  longestTtlMs,
  type NoAnswer,
} from "../../lock/store.ts";
import type { Command, EntryReply } from "./commands.ts";
import { unexpectedReply } from "./no-answers.ts";
import { freeScript } from "./scripts/free.ts";
import { inspectScript } from "./scripts/inspect.ts";

export const inspectCommand: Command<InspectRequest, InspectReply> = {
  script: inspectScript,
  headLength: 1,
  maxEntries: 100,
  head: () => [],
  add: ({ command }, keys) => {
    keys.push(command.key);
  },
  read: inspectReply,
};

/** A person frees one at a time. */
export const freeCommand: Command<FreeRequest, FreeReply> = {
  script: freeScript,
  headLength: 1,
  maxEntries: 1,
  head: () => [],
  add: ({ command, id, by, reason, now }, keys, args) => {
    keys.push(command.key);
    args.push(id, by, reason, command.times.ttlMs, now ? 1 : 0);
  },
  read: freeReply,
};

function freeReply({ code, redisTimeMs: storeTimeMs }: EntryReply): FreeReply {
  if (typeof code === "string" || code < -2) return unexpectedReply(code);
  if (code >= 0) {
    return { kind: "answered", result: { outcome: "freed", freeInMs: code }, storeTimeMs };
  }
  const outcome = code === -1 ? "changed" : "already-free";
  return { kind: "answered", result: { outcome }, storeTimeMs };
}

function inspectReply({ code, redisTimeMs: storeTimeMs }: EntryReply): InspectReply {
  const found = code === 0 ? ({ state: "free" } as const) : inspectionOf(code, storeTimeMs);
  return "state" in found ? { kind: "inspected", found, storeTimeMs } : found;
}

/** The text that the script gave: the rest of the key's life, a colon and the value. */
function inspectionOf(text: number | string, storeTimeMs: number): Inspection | NoAnswer {
  const [, pttl, value] = /^(-1|\d+):(.+)$/s.exec(String(text)) ?? [];
  if (value === undefined) return unexpectedReply(text);
  const expiresInMs = pttl === "-1" ? Number.POSITIVE_INFINITY : Number(pttl);
  const [state, rest = ""] = value.split(/:(.*)/s);
  switch (state) {
    case "foreign":
      return { state, id: idOf(rest), expiresInMs };
    case "other":
      return { state: "foreign", id: idOf(rest), expiresInMs, notText: true };
    case "cooldown": {
      return { state, id: idOf(rest), expiresInMs, ...ifTooLong(expiresInMs, longestCooldownMs) };
    }
    case "freed": {
      const [ownerId = "", by = "", , reason = "", isForeign] = rest.split(":");
      const texts = { by: decoded(by), reason: decoded(reason) };
      const tooLong = isForeign === undefined ? ifTooLong(expiresInMs, longestTtlMs) : {};
      return { state, id: idOf(ownerId), ...texts, expiresInMs, ...tooLong };
    }
    default:
      return heldOf(value, expiresInMs, storeTimeMs);
  }
}

/** A lock of 0.1 is an owner id and nothing else. */
const lockValue = /^.{36}:(\d{16}):(\d+):(\d+):([^:]*):/s;

function heldOf(value: string, expiresInMs: number, storeTimeMs: number): Inspection {
  const [, token, ttlMs, maxHoldMs, holder = ""] = lockValue.exec(value) ?? [];
  const held = { state: "held", id: idOf(value), holder: decoded(holder), expiresInMs } as const;
  if (token === undefined) {
    return { ...held, heldMs: undefined, renewedMs: undefined, endsInMs: undefined };
  }
  const heldMs = atLeast0(storeTimeMs - Math.floor(Number(token) / 1_000));
  const renewedMs = atLeast0(Number(ttlMs) - expiresInMs);
  const endsInMs = atLeast0(Number(maxHoldMs) - heldMs);
  return { ...held, heldMs, renewedMs, endsInMs, ...ifTooLong(expiresInMs, Number(ttlMs)) };
}

/** Rule 18: only a clock that was set back makes a life of ours so long. */
function ifTooLong(expiresInMs: number, mostMs: number): { readonly clockSetBack?: true } {
  const isTooLong = expiresInMs > mostMs && expiresInMs !== Number.POSITIVE_INFINITY;
  return isTooLong ? { clockSetBack: true } : {};
}

function idOf(ownerIdOrHash: string): string {
  return ownerIdOrHash.slice(0, 8);
}

function atLeast0(ms: number): number {
  return Math.max(0, ms);
}

/** As it is, where somebody else wrote it. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
