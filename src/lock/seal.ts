import * as crypto from "node:crypto";
import { types } from "node:util";
import { InvalidOptionError } from "../errors.ts";
import { checkOptionNames, describe, invalidOption, warnOnce } from "../validation.ts";
import type { SubmissionHashes } from "./store.ts";

/** How answers and values are encrypted before they leave the process. */
export interface SealOptions {
  /**
   * Secrets of 32 bytes, such as `Buffer.from(text, "base64")`. The first, the newest, seals; every
   * key opens. A submission whose record no key opens is refused with 409 until `retainMs` is over.
   * To rotate, put the new key behind the old one, and where `idKey` is not set, set it to the old
   * one; once all processes open with both, put the new key in front. The old one may go after
   * `retainMs`.
   */
  readonly keys: readonly Uint8Array[];
  /**
   * A secret of 32 bytes for the HMACs that stand for ids and fingerprints in Redis. It must never
   * change: a repeat would not find its answer, and would run again. `false`: hashes without a
   * secret, as without `seal`, so that a shop that begins to seal still finds its older answers.
   * @defaultValue the last of `keys`
   */
  readonly idKey?: Uint8Array | false | undefined;
}

/** Why a record cannot be read: no key of `seal.keys` fits, or its bytes were changed or moved. */
export type Unreadable = "sealed with another key" | "damaged";

/** The mark of sealed content. Open content begins with a hexadecimal digit. */
const mark = "s";
const idLength = 4;
const nonceLength = 12;
const tagLength = 16;
const shortest = mark.length + idLength + nonceLength + tagLength;

/**
 * Rule 27: encrypts records with AES-256-GCM: `s`, 4 bytes that name the secret, a nonce of 12, the
 * encrypted bytes, a tag of 16. Each record has a key of its own, made of the secret and its place,
 * fingerprint and owner id, so that the answer of one submission is never taken for another's.
 */
export class Seal {
  readonly #keys: readonly { readonly id: Buffer; readonly key: Uint8Array }[];
  readonly #idKey: Buffer | undefined;

  /** @throws InvalidOptionError, whose message has no byte of a key. */
  constructor(options: SealOptions) {
    // Check for a string first: it may be the secret, and any other message would show it.
    if (typeof options === "string")
      throw new InvalidOptionError("seal: expected { keys }, got a string");
    checkOptionNames("seal", options, ["keys", "idKey"]);
    const { keys, idKey } = options;
    if (typeof keys === "string") checkSealKey("seal.keys", keys);
    if (!Array.isArray(keys) || keys.length === 0) {
      throw invalidOption("seal.keys", "an array with at least one key of 32 bytes", keys);
    }
    for (const key of keys) checkSealKey("seal.keys", key);
    if (idKey !== undefined && idKey !== false) checkSealKey("seal.idKey", idKey);
    const last = keys.at(-1) as Uint8Array;
    if (idKey === undefined && keys.length > 1) {
      warnOnce(
        "SUBMIT_LOCK_SEAL_ID_KEY",
        "seal.keys has several keys, and ids are made with the last one. Set seal.idKey to the key that makes them in the processes that run now, their only or last one: with another, a repeat does not find its answer, and runs again",
      );
    }
    // Copies, because an application may wipe or reuse the memory of its secrets.
    this.#keys = keys.map((key) => ({
      key: Buffer.from(key),
      id: derived(key, "key").subarray(0, idLength),
    }));
    this.#idKey = idKey === false ? undefined : derived(idKey ?? last, "ids");
  }

  hashesOf(id: string, fingerprint: string): SubmissionHashes {
    if (this.#idKey === undefined) return { id, fingerprint };
    const isCompared = /[^-]/.test(fingerprint);
    return {
      id: this.#hmac22(`id\n${id}`),
      fingerprint: isCompared ? this.#hmac22(`fingerprint\n${id}\n${fingerprint}`) : fingerprint,
    };
  }

  /** @param place lock key, submission and head, which must be equal when the content is opened. */
  seal(content: Uint8Array, place: string): Buffer {
    const { id, key } = this.#keys[0] as { id: Buffer; key: Uint8Array };
    const nonce = crypto.randomBytes(nonceLength);
    const cipher = crypto.createCipheriv("aes-256-gcm", derived(key, place), nonce);
    const sealed = [cipher.update(content), cipher.final()];
    return Buffer.concat([Buffer.from(mark), id, nonce, ...sealed, cipher.getAuthTag()]);
  }

  open(sealed: Buffer, place: string): Buffer | Unreadable {
    if (sealed.length < shortest) return "damaged";
    const id = sealed.subarray(mark.length, mark.length + idLength);
    const nonce = sealed.subarray(mark.length + idLength, shortest - tagLength);
    const fitting = this.#keys.filter((each) => each.id.equals(id));
    for (const { key } of fitting) {
      const decipher = crypto.createDecipheriv("aes-256-gcm", derived(key, place), nonce);
      decipher.setAuthTag(sealed.subarray(-tagLength));
      try {
        const content = decipher.update(sealed.subarray(shortest - tagLength, -tagLength));
        return Buffer.concat([content, decipher.final()]);
      } catch {
        // The tag is wrong: another key may have the same 4 bytes.
      }
    }
    return fitting.length === 0 ? "sealed with another key" : "damaged";
  }

  #hmac22(text: string): string {
    const hmac = crypto.createHmac("sha256", this.#idKey as Buffer).update(text);
    return hmac.digest("base64url").slice(0, 22);
  }
}

export function isSealed(content: Buffer): boolean {
  return content[0] === mark.charCodeAt(0);
}

/**
 * Derives 32 bytes. Each record has a key of its own, because random nonces of 12 bytes are safe
 * up to 2^32 records of one key (NIST SP 800-38D, section 8.3), as many as a large shop has a year.
 */
function derived(key: Uint8Array, purpose: string): Buffer {
  return crypto.createHmac("sha256", key).update(`submit-lock\n${purpose}`).digest();
}

/** Checks a secret. @throws InvalidOptionError that has its length, and none of its bytes. */
function checkSealKey(name: string, key: unknown): void {
  const isBytes = types.isUint8Array(key);
  if (isBytes && key.byteLength === 32) return;
  const length = (key as { length?: unknown } | undefined)?.length;
  const came =
    isBytes || typeof key === "string"
      ? `${typeof key === "string" ? "a string" : "bytes"} of length ${length}`
      : describe(key);
  throw new InvalidOptionError(
    `${name}: expected 32 bytes, such as Buffer.from(text, "base64"), got ${came}`,
  );
}
