import { Agent, type ClientRequest, type IncomingHttpHeaders, request } from "node:http";
import { type ClientHttp2Session, connect, constants } from "node:http2";

export interface Reply {
  status: number;
  headers: Record<string, unknown>;
  body: string;
}

export interface Submit {
  method?: string;
  path?: string;
  headers?: Record<string, string | string[]>;
  body?: string | Buffer | undefined;
}

/** A request under way. */
export interface Call {
  /** Rejects when the request was aborted or its connection broke. */
  readonly reply: Promise<Reply>;
  /** Resolves when the headers of the answer are there. */
  readonly begun: Promise<void>;
  abort(): void;
}

export interface HttpClient {
  call(submit: Submit): Call;
  close(): void;
}

/** A client with connections of its own that it keeps alive. */
export function openClient(http: 1 | 2, port: number): HttpClient {
  return http === 1 ? http1Client(port) : http2Client(port);
}

function http1Client(port: number): HttpClient {
  const agent = new Agent({ keepAlive: true });
  return {
    call({ method = "POST", path = "/orders", headers = {}, body }) {
      const req = request({ host: "127.0.0.1", port, method, path, headers, agent });
      return callOf(
        new Promise((resolve, reject) => {
          req.once("error", reject).once("response", (res) => {
            resolve({ status: res.statusCode ?? 0, headers: res.headers, source: res });
          });
          req.end(body);
        }),
        () => abortHttp1(req),
      );
    },
    close: () => agent.destroy(),
  };
}

function abortHttp1(req: ClientRequest): void {
  req.destroy();
}

function http2Client(port: number): HttpClient {
  let session: ClientHttp2Session | undefined;
  return {
    call({ method = "POST", path = "/orders", headers = {}, body }) {
      if (session === undefined || session.closed || session.destroyed) {
        session = connect(`http://127.0.0.1:${port}`).on("error", () => {});
      }
      const stream = session.request({ ":method": method, ":path": path, ...headers });
      return callOf(
        new Promise((resolve, reject) => {
          stream.once("error", reject);
          stream.once("close", () => reject(new Error("the stream was closed")));
          stream.once("response", ({ ":status": status, ...rest }) => {
            resolve({ status: Number(status), headers: rest, source: stream });
          });
          stream.end(body);
        }),
        () => stream.close(constants.NGHTTP2_CANCEL),
      );
    },
    close: () => session?.destroy(),
  };
}

interface Begun {
  status: number;
  headers: IncomingHttpHeaders;
  source: NodeJS.ReadableStream & AsyncIterable<Buffer>;
}

function callOf(response: Promise<Begun>, abort: () => void): Call {
  const reply = response.then(async ({ status, headers, source }) => {
    const chunks: Buffer[] = [];
    for await (const chunk of source) chunks.push(chunk);
    // It tells the time, and nothing else.
    const { date: _date, ...others } = headers;
    return { status, headers: { ...others }, body: Buffer.concat(chunks).toString("latin1") };
  });
  const begun = response.then(() => {});
  // A test that aborts need not look at either.
  for (const promise of [reply, begun]) promise.catch(() => {});
  return { reply, begun, abort };
}
