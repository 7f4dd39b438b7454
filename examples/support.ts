// A page for the support team, on Express 5: it shows a lock and frees it.
import express, { type Router } from "express";
import type { SubmitLock } from "submit-lock";

/**
 * Mount it behind the login of the support team, which sets `res.locals["agent"]`. On Express 4,
 * pass what `inspect` and `free` reject with to `next`.
 */
export function supportPage(lock: SubmitLock): Router {
  const router = express.Router();
  router.get("/locks/:user", async (req, res) => {
    res.json(await lock.inspect(req.params.user));
  });
  router.post("/locks/:user/free", express.json(), async (req, res) => {
    const { user } = req.params;
    const { id, reason } = req.body as { id: string; reason: string };
    const asked = { id, reason, by: res.locals["agent"] as string };
    const result = await lock.free(user, asked);
    console.log(JSON.stringify({ event: "lock freed", user, ...asked, ...result }));
    res.status(result.outcome === "changed" ? 409 : 200).json(result);
  });
  return router;
}
