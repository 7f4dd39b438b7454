/** What a reader has at hand by then, for the blocks that do not make it themselves. */
export const atHand = `
import "submit-lock/express";
declare global {
  const SubmitLock: typeof import("submit-lock").SubmitLock;
  const submitGuard: typeof import("submit-lock/express").submitGuard;
  const app: import("express").Express;
  const lock: import("submit-lock").SubmitLock;
  const redis: import("ioredis").Redis;
  const placeOrder: import("express").RequestHandler;
  const refund: import("express").RequestHandler;
  const server: import("node:http").Server;
  const store: import("submit-lock").LockStore;
  const userId: (req: import("express").Request) => string | undefined;
}
`;
