import { once } from "node:events";
import { Agent, type IncomingHttpHeaders, request, type Server } from "node:http";
import { type ClientHttp2Session, connect, constants, type Http2Server } from "node:http2";
import { type AddressInfo, connect as connectSocket, type Socket } from "node:net";
import { until } from "../support/until.ts";

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

/** Listens on a free port of this machine alone, and resolves with the port. */
export async function listen(server: Server | Http2Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
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
        () => void req.destroy(),
      );
    },
    close: () => agent.destroy(),
  };
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

/** A bare connection, for requests in a row that no HTTP client sends. */
export interface RawConnection {
  readonly socket: Socket;
  /** Everything that has come. */
  readonly text: string;
  send(...requests: string[]): void;
  /** Resolves with the bodies when so many answers have come. */
  answers(count: number): Promise<string[]>;
}

export async function openRaw(port: number): Promise<RawConnection> {
  const socket = connectSocket(port, "127.0.0.1").setNoDelay(true);
  socket.on("error", () => {});
  let text = "";
  socket.on("data", (chunk: Buffer) => {
    text += chunk.toString("latin1");
  });
  await once(socket, "connect");
  const answers = () => [
    ...text.matchAll(/HTTP\/1\.1 (\d+) [\s\S]*?\r\n\r\n([\s\S]*?)(?=HTTP\/1\.1|$)/g),
  ];
  return {
    socket,
    get text() {
      return text;
    },
    send: (...requests) => void socket.write(requests.join("")),
    async answers(count) {
      await until(() => answers().length >= count && text.endsWith("}"), {
        what: `${count} answers`,
      });
      return answers().map(([, status, body]) => `${status} ${body}`);
    },
  };
}

export function submitBytes(user: string, headers: Record<string, string> = {}): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `POST /orders HTTP/1.1\r\nHost: shop\r\nX-User: ${user}\r\nContent-Length: 0\r\n${lines.join("")}\r\n`;
}
