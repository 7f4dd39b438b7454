import { randomUUID } from "node:crypto";

/** A user id that no other test and no other process has used. */
export function freshUser(): string {
  return `user-${randomUUID()}`;
}
