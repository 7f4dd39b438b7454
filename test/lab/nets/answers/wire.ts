import { connect, type Socket } from "node:net";
import { gunzipSync } from "node:zlib";

/** An answer as it came over a socket. */
export interface Answer {
  /** "broken": the connection ended before the answer did. "hanging": the client lost its patience. */
  readonly ending: "whole" | "broken" | "hanging";
  readonly status: number;
  /** The status with its reason. */
  readonly line: string;
  readonly headers: ReadonlyMap<string, readonly string[]>;
  /** Without the framing of chunks. */
  readonly body: Buffer;
  readonly trailers: string;
}

export interface Asked {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  /** How long the connection may be silent, in ms; then the client leaves. */
  readonly patienceMs: number;
  /** When the client leaves without an answer. */
  readonly leaves?: Promise<void> | undefined;
}

/** Sends a request over a connection of its own. */
export function ask(port: number, { headers, leaves, method, patienceMs }: Asked): Promise<Answer> {
  return new Promise((resolve) => {
    const socket: Socket = connect(port, "127.0.0.1");
    let bytes = Buffer.alloc(0);
    const settle = (ending: Answer["ending"]) => {
      // Not `destroy`, which would leave thousands of ports in TIME_WAIT.
      socket.resetAndDestroy();
      resolve(parsed(bytes, method, ending).answer);
    };
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    const size = method === "GET" || method === "HEAD" ? "" : "content-length: 3\r\n";
    socket.write(`${method} /orders HTTP/1.1\r\nhost: shop\r\n${size}${lines.join("")}\r\n`);
    if (size !== "") socket.write("[1]");
    void leaves?.then(() => settle("hanging"));
    socket.setTimeout(patienceMs, () => settle("hanging"));
    socket.on("error", () => {});
    socket.on("close", () => settle(parsed(bytes, method, "broken", true).answer.ending));
    socket.on("data", (chunk) => {
      bytes = Buffer.concat([bytes, chunk]);
      if (parsed(bytes, method, "broken").answer.ending === "whole") settle("whole");
    });
  });
}

function parsed(bytes: Buffer, method: string, ending: Answer["ending"], isClosed = false) {
  const from = bytes.indexOf("\r\n\r\n");
  const [line = "", ...fields] = bytes
    .subarray(0, Math.max(0, from))
    .toString("latin1")
    .split("\r\n");
  const status = Number(line.split(" ")[1] ?? 0);
  // An interim answer announces the final one.
  if (from >= 0 && status < 200) return parsed(bytes.subarray(from + 4), method, ending, isClosed);
  const headers = new Map<string, string[]>();
  for (const field of fields) {
    const colon = field.indexOf(":");
    const name = field.slice(0, colon).toLowerCase();
    headers.set(name, [...(headers.get(name) ?? []), field.slice(colon + 1).trim()]);
  }
  const rest = bytes.subarray(from + 4);
  const answer = { ending, status, line, headers, body: Buffer.alloc(0), trailers: "" };
  const whole = (more: Partial<Answer>) => ({
    answer: { ...answer, ending: "whole", ...more } as Answer,
  });
  if (from < 0) return { answer };
  if (method === "HEAD" || status === 204 || status === 304) return whole({});
  if (headers.get("transfer-encoding")?.join() === "chunked") {
    const { body, isWhole, trailers } = unchunked(rest);
    return isWhole ? whole({ body, trailers }) : { answer: { ...answer, body } };
  }
  const length = headers.get("content-length")?.[0];
  if (length === undefined)
    return isClosed ? whole({ body: rest }) : { answer: { ...answer, body: rest } };
  const body = rest.subarray(0, Number(length));
  return body.length === Number(length) ? whole({ body }) : { answer: { ...answer, body } };
}

function unchunked(bytes: Buffer): { body: Buffer; isWhole: boolean; trailers: string } {
  const chunks: Buffer[] = [];
  for (let at = 0; ; ) {
    const end = bytes.indexOf("\r\n", at);
    const size = Number.parseInt(bytes.toString("latin1", at, end), 16);
    const body = () => Buffer.concat(chunks);
    // A size that is none: another answer was written into the body.
    if (end < 0 || Number.isNaN(size) || bytes.length < end + 2 + size + 2)
      return { body: body(), isWhole: false, trailers: "" };
    if (size === 0) {
      const last = bytes.toString("latin1", end, bytes.length);
      const isWhole = last.endsWith("\r\n\r\n");
      return { body: body(), isWhole, trailers: last.trim() };
    }
    chunks.push(bytes.subarray(end + 2, end + 2 + size));
    at = end + 2 + size + 2;
  }
}

/** Behind its coding: two ways to write in chunks may be compressed differently. */
export function textOf({ body, headers }: Answer): string {
  if (body.length === 0 || headers.get("content-encoding")?.join() !== "gzip") {
    return body.toString("latin1");
  }
  try {
    return gunzipSync(body).toString("latin1");
  } catch {
    return `not gzip: ${body.toString("latin1")}`;
  }
}
