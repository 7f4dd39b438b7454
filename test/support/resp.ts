/** One whole value of the Redis protocol as it came over the wire. */
export interface Frame {
  readonly bytes: Buffer;
  /** The type byte: `*` for a request, `>` for a push that answers no request. */
  readonly type: string;
}

/** Cuts a byte stream into whole values (RESP2 and RESP3), however it was split into chunks. */
export class FrameReader {
  #rest: Buffer = Buffer.alloc(0);

  push(chunk: Buffer): Frame[] {
    const bytes = Buffer.concat([this.#rest, chunk]);
    const frames: Frame[] = [];
    let start = 0;
    for (let end = endOfValue(bytes, 0); end !== -1; end = endOfValue(bytes, start)) {
      frames.push({
        bytes: bytes.subarray(start, end),
        type: String.fromCharCode(bytes[start] ?? 0),
      });
      start = end;
    }
    this.#rest = bytes.subarray(start);
    return frames;
  }
}

/** The arguments of a request, its name first. */
export function argvOf(request: Buffer): string[] {
  const argv: string[] = [];
  let at = endOfLine(request, 0);
  while (at !== -1 && at < request.length) {
    const from = endOfLine(request, at);
    const end = endOfValue(request, at);
    if (from === -1 || end === -1) break;
    argv.push(request.toString("utf8", from, end - 2));
    at = end;
  }
  return argv;
}

/** Where the value that begins at `at` ends, or -1 while part of it is still to come. */
function endOfValue(bytes: Buffer, at: number): number {
  const line = endOfLine(bytes, at);
  if (line === -1) return -1;
  const type = String.fromCharCode(bytes[at] ?? 0);
  const count = Number(bytes.toString("latin1", at + 1, line - 2));
  if ("$!=".includes(type)) {
    // A length of -1 is RESP2's null: nothing follows.
    const end = count < 0 ? line : line + count + 2;
    return end <= bytes.length ? end : -1;
  }
  if ("*~>".includes(type)) return endOfValues(bytes, line, count);
  if (type === "%") return endOfValues(bytes, line, count * 2);
  // An attribute is a map that comes before the value it belongs to.
  if (type === "|") return endOfValues(bytes, line, count * 2 + 1);
  return line;
}

function endOfValues(bytes: Buffer, from: number, count: number): number {
  let at = from;
  for (let i = 0; i < count && at !== -1; i++) at = endOfValue(bytes, at);
  return at;
}

function endOfLine(bytes: Buffer, at: number): number {
  const end = bytes.indexOf("\r\n", at, "latin1");
  return end === -1 ? -1 : end + 2;
}
