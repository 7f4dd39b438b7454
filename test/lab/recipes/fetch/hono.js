// `bun run hono.js`, which listens on PORT, or `deno serve --host 127.0.0.1 hono.js`.
import { Hono } from "hono";
import { passOrder, placeOrder, reportOrder } from "./orders.js";
import { backend } from "./others.js";

const app = new Hono();
app.post("/orders", (c) => placeOrder(c.req.raw));
app.post("/orders/report", (c) => reportOrder(c.req.raw));
app.post("/others/:name", (c) => passOrder(c.req.raw));
app.post("/backend", (c) => backend(c.req.raw));

export default { hostname: "127.0.0.1", fetch: app.fetch };
