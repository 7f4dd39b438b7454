import { describe, expect, test } from "vitest";
import { sentFiles } from "../../src/node/payload.ts";

const file = { fieldname: "list", originalname: "a.txt", mimetype: "text/plain", size: 3 };
const inMemory = { ...file, buffer: Buffer.from("abc") };

test("places without a file describe nothing", () => {
  for (const places of [[], [undefined, null], [[], {}], [Object.create(null)], [{ list: [] }]]) {
    expect(sentFiles(places)).toBeUndefined();
  }
});

test("a file that lies in two places is one file", () => {
  const files = { list: [inMemory] };
  expect(sentFiles([files, undefined, files])).toEqual(sentFiles([files]));
});

test("a field may have any name", () => {
  const files = JSON.parse('{"__proto__":{"name":"a","hash":"1"},"size":{"name":"b","hash":"2"}}');
  expect(Object.keys(sentFiles([files]) ?? {})).toEqual(["__proto__", "size"]);
});

describe("cannot be compared:", () => {
  test.each<[what: string, place: unknown]>([
    ["a file without bytes", file],
    ["an empty buffer of a file on disk", { ...inMemory, buffer: Buffer.alloc(0) }],
    ["bytes that are not those of the size", { ...inMemory, size: 4 }],
    ["bytes without a size", { ...inMemory, size: undefined }],
    ["a hash that is empty", { ...file, hash: "" }],
    ["a hash that is not finished", { ...file, hash: { update() {} } }],
    ["an ETag", { ...file, etag: '"900150983cd24fb0d6963f7d28e17f72"' }],
    ["a path", { path: "/tmp/a" }],
    ["a web File", new File(["abc"], "a.txt")],
    ["a file among others", [inMemory, file]],
    ["a file in a field of a field", { list: { first: file } }],
  ])("%s", (_what, place) => {
    expect(() => sentFiles([place])).toThrow(
      expect.objectContaining({ code: "SUBMIT_LOCK_NO_FINGERPRINT", status: 500 }),
    );
  });
});
