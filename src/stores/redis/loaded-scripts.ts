import { createHash } from "node:crypto";
import { isServerError } from "./ioredis.ts";

/**
 * Which scripts the nodes behind one connection have, as far as this process knows: those are called
 * by their SHA-1 instead of their text of 1 to 2 KB. A node forgets them at a restart, at SCRIPT
 * FLUSH, at a failover to a replica that never saw them and, since Redis 7.4, when it has seen 500
 * others. It then says so, and is sent the text again.
 */
export class LoadedScripts {
  static readonly #digests = new Map<string, string>();
  readonly #ofNode = new Map<string, Set<string>>();
  #isRefused = false;

  /** What to call the script by on this node; `undefined`: by its text. */
  digestOf(node: string, script: string): string | undefined {
    if (this.#isRefused || this.#ofNode.get(node)?.has(script) !== true) return undefined;
    return LoadedScripts.#digests.get(script);
  }

  /** The node has executed it, and so has it. */
  add(node: string, script: string): void {
    const scripts = this.#ofNode.get(node);
    if (scripts?.has(script)) return;
    if (scripts === undefined) this.#ofNode.set(node, new Set([script]));
    else scripts.add(script);
    const digests = LoadedScripts.#digests;
    if (!digests.has(script)) digests.set(script, createHash("sha1").update(script).digest("hex"));
  }

  /** The connection is a new one: it may lead to another server, or to another user's permissions. */
  forget(): void {
    this.#ofNode.clear();
    this.#isRefused = false;
  }

  /**
   * Takes note of an error that came of a call by the digest.
   *
   * @returns whether it says that nothing was executed because it was called by its digest: the node
   *   does not have the script, or this user may call scripts by their text alone.
   */
  heard(node: string, script: string, error: unknown): boolean {
    if (!isServerError(error)) return false;
    if (error.message.startsWith("NOSCRIPT")) {
      this.#ofNode.get(node)?.delete(script);
      return true;
    }
    const isRefused = /^(NOPERM|ERR unknown command)\b.*\bevalsha\b/i.test(error.message);
    this.#isRefused ||= isRefused;
    return isRefused;
  }
}
