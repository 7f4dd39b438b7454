import { PassThrough } from "node:stream";

/** The middle of a stream: some of it has been sent, and more is to come. */
export function endless(): PassThrough {
  const stream = new PassThrough();
  stream.on("error", () => {});
  stream.write("the first part");
  return stream;
}
