// `node node.js`: a server of Node that speaks Request and Response, without a framework.
import { createServer } from "node:http";
import process from "node:process";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import shop from "./plain.js";

const server = createServer(async (req, res) => {
  const left = new AbortController();
  res.on("close", () => left.abort());
  const { method, headers } = req;
  const body = method === "GET" || method === "HEAD" ? undefined : Readable.toWeb(req);
  const init = { method, headers, body, duplex: "half", signal: left.signal };
  try {
    const response = await shop.fetch(new Request(`http://shop.test${req.url}`, init));
    res.writeHead(response.status, [...response.headers].flat());
    if (response.body === null) res.end();
    else await pipeline(Readable.fromWeb(response.body), res);
  } catch {
    // The client has left, or the handler has failed.
    if (res.headersSent) res.destroy();
    else res.writeHead(500).end();
  }
});
server.listen(Number(process.env.PORT), "127.0.0.1");
