/** A `Response` of a library: the platform reads its `headers` as a plain object. */
export class ForeignResponse {
  readonly body: ReadableStream<Uint8Array> | null;
  readonly status: number;
  readonly statusText = "";
  readonly bodyUsed = false;
  readonly headers: object;

  constructor(status: number, text: string | null, lines: readonly (readonly [string, string])[]) {
    this.status = status;
    this.body = new Response(text).body;
    const pairs = lines.map(([name, value]) => [name.toLowerCase(), value] as const);
    this.headers = {
      get: (name: string) => pairs.find((pair) => pair[0] === name.toLowerCase())?.[1] ?? null,
      has: (name: string) => pairs.some((pair) => pair[0] === name.toLowerCase()),
      getSetCookie: () => pairs.filter(([name]) => name === "set-cookie").map(([, each]) => each),
      entries: () => pairs[Symbol.iterator](),
      keys: () => pairs.map(([name]) => name)[Symbol.iterator](),
      forEach: (call: (value: string, name: string) => void) => {
        for (const [name, value] of pairs) call(value, name);
      },
      [Symbol.iterator]: () => pairs[Symbol.iterator](),
    };
  }
}
