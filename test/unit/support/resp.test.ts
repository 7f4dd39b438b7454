import { expect, test } from "vitest";
import { argvOf, FrameReader } from "../../support/resp.ts";

const SAMPLES = [
  "+OK\r\n",
  "-ERR no\r\n",
  ":-12\r\n",
  "$5\r\na\r\nb!\r\n",
  "$-1\r\n",
  "*-1\r\n",
  "*0\r\n",
  "*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
  "%1\r\n+k\r\n#t\r\n",
  ">2\r\n+invalidate\r\n_\r\n",
  "|1\r\n+ttl\r\n:3\r\n$1\r\nv\r\n",
  "=7\r\ntxt:abc\r\n",
];

test.each([1, 2, 3, 7, 1_000])("values cut into chunks of %i bytes come out whole", (size) => {
  const stream = Buffer.from(SAMPLES.join(""));
  const reader = new FrameReader();
  const frames: string[] = [];
  for (let at = 0; at < stream.length; at += size) {
    for (const frame of reader.push(stream.subarray(at, at + size))) {
      frames.push(frame.bytes.toString());
    }
  }
  expect(frames).toEqual(SAMPLES);
});

test("a request gives its arguments, line breaks and long ones included", () => {
  const request = Buffer.from("*3\r\n$4\r\neval\r\n$6\r\na\r\nb\r\n\r\n$0\r\n\r\n");
  expect(argvOf(request)).toEqual(["eval", "a\r\nb\r\n", ""]);
});
