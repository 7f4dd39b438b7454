import type { Library } from "../../faults/library.ts";
import { setAndCompare, setAndDel } from "../../faults/plain.ts";
import { submitLock } from "../../faults/submit-lock.ts";
import { redisSemaphore } from "./redis-semaphore.ts";
import { redlock } from "./redlock.ts";
import { redlockUniversal } from "./redlock-universal.ts";
import { verrou } from "./verrou.ts";

/** In the order of the table. "One try" is what a click needs; "defaults" is what their documentation shows. */
export const neighbours: Library[] = [
  submitLock,
  setAndDel,
  setAndCompare,
  ...redlock,
  ...redisSemaphore,
  ...verrou,
  ...redlockUniversal,
];
