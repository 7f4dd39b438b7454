import type { KeyWatcher } from "../server/keys.ts";
import type { ClientWatcher } from "./surroundings.ts";

/** For tests that look at the answers alone: nobody watches what becomes of keys. */
export const nobody: KeyWatcher = { set() {}, lengthened() {}, deleted() {}, expired() {} };

/** The same for what the clients do. */
export const noClientWatcher: ClientWatcher = {
  writes() {},
  executes: (_copy, run) => run(),
  reads() {},
  troubled: () => () => {},
  connected() {},
  closed() {},
};
