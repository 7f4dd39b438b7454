import { createHash } from "node:crypto";
import { NoFingerprintError } from "../errors.ts";
import { isPlain } from "./fingerprint.ts";

/** The files of a form by their fields, as a fingerprint compares them. */
export type SentFiles = Readonly<Record<string, readonly (readonly string[])[]>>;

/**
 * Describes the files that a parser has left on a request; `undefined` where there are none.
 *
 * @param places the values of the properties in which parsers leave a file, or arrays and plain
 * objects of files.
 * @throws NoFingerprintError for a file whose bytes are neither in memory nor hashed: two files of
 * one name and one size would pass for each other.
 */
export function sentFiles(places: readonly unknown[]): SentFiles | undefined {
  // Without a prototype: a client gives the names of the fields.
  const files: Record<string, string[][]> = Object.create(null);
  // A parser for Koa may leave one object in two places.
  for (const place of new Set(places)) collect(place, "", files);
  const all = Object.values(files);
  for (const ofField of all) {
    // Formidable lists the files of a field as the disk has written them: the order does not count.
    if (ofField.some(([how]) => how === "hash")) ofField.sort((a, b) => (`${a}` < `${b}` ? -1 : 1));
  }
  return all.length > 0 ? files : undefined;
}

function collect(value: unknown, field: string, files: Record<string, string[][]>): void {
  if (typeof value !== "object" || value === null) return;
  if (Array.isArray(value)) {
    for (const each of value) collect(each, field, files);
  } else if (isContainer(value)) {
    for (const [name, each] of Object.entries(value)) {
      collect(each, field === "" ? name : `${field}[${name}]`, files);
    }
  } else {
    const file = value as Readonly<Record<string, unknown>>;
    const name = textOf(file, "fieldname") ?? field;
    files[name] ??= [];
    files[name].push(describe(file));
  }
}

/** An object of fields holds files and arrays only; a file has a name, a path or a class. */
function isContainer(value: object): boolean {
  return isPlain(value) && Object.values(value).every((each) => typeof each === "object");
}

/** How its bytes are known, their hash, its name, its type and its size. */
function describe(file: Readonly<Record<string, unknown>>): string[] {
  const name = textOf(file, "originalname", "originalFilename", "name") ?? "";
  const about = [name, textOf(file, "mimetype", "type") ?? "", `${file["size"]}`];
  const bytes = file["buffer"] ?? file["data"];
  // With temporary files, express-fileupload leaves an empty buffer.
  if (bytes instanceof Uint8Array && bytes.length === file["size"]) {
    return ["bytes", createHash("sha256").update(bytes).digest("base64url"), ...about];
  }
  // No ETag: some stores give each upload of the same bytes another one.
  const hash = textOf(file, "hash", "md5", "checksum");
  if (hash !== undefined) return ["hash", hash, ...about];
  throw new NoFingerprintError(
    "cannot compare this request with earlier ones of its Idempotency-Key: it has a file whose bytes are not in memory, and whose parser gave no hash. Keep uploads in memory, let the parser hash them, or give idempotency.fingerprint",
  );
}

function textOf(
  object: Readonly<Record<string, unknown>>,
  ...names: readonly string[]
): string | undefined {
  const texts = names.map((name) => object[name]);
  return texts.find((text): text is string => typeof text === "string" && text !== "");
}
