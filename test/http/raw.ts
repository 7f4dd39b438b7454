import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { until } from "../support/until.ts";

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
  const socket = connect(port, "127.0.0.1").setNoDelay(true);
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

/** The bytes of a submit of this user. */
export function submitBytes(user: string, headers: Record<string, string> = {}): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `POST /orders HTTP/1.1\r\nHost: shop\r\nX-User: ${user}\r\nContent-Length: 0\r\n${lines.join("")}\r\n`;
}
