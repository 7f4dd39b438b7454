import { readFileSync } from "node:fs";
import type { Arguments } from "./arguments.ts";
import { UsageError } from "./failure.ts";

/** Where to connect to, and how. */
export interface Target {
  readonly isCluster: boolean;
  readonly options: TargetOptions;
}

/** Of the options of ioredis. */
export interface TargetOptions {
  readonly host?: string;
  readonly port?: number;
  readonly username?: string;
  readonly password?: string;
  readonly db?: number;
  readonly tls?: { readonly ca?: string };
  readonly keyPrefix?: string;
  readonly sentinels?: { host: string; port: number }[];
  readonly name?: string;
}

export function targetOf(args: Arguments, env: NodeJS.ProcessEnv): Target {
  const given = args.text("url") ?? env["REDIS_URL"] ?? "";
  const sentinels = args.text("sentinel");
  const master = args.text("master");
  if (sentinels === undefined && given === "") {
    throw new UsageError(
      "where is Redis? Set REDIS_URL, or give --url redis://host:6379, --sentinel or --config",
    );
  }
  if ((sentinels === undefined) !== (master === undefined)) {
    throw new UsageError(
      "--sentinel and --master belong together: --sentinel a:26379,b:26379 --master mymaster",
    );
  }
  if (sentinels !== undefined && args.has("cluster")) {
    throw new UsageError("--sentinel and --cluster exclude each other");
  }
  const { host, port, ...rest }: TargetOptions = given === "" ? {} : fromUrl(given);
  if (args.has("cluster") && (rest.db ?? 0) !== 0) {
    throw new UsageError("a Cluster has database 0 alone: leave the other one out of the address");
  }
  const keyPrefix = args.text("ioredis-prefix");
  const authority = args.text("tls-ca");
  const options: TargetOptions = {
    ...rest,
    ...(keyPrefix === undefined ? {} : { keyPrefix }),
    ...(authority === undefined ? {} : { tls: { ca: read("tls-ca", authority) } }),
    ...(sentinels === undefined
      ? { host: host ?? "127.0.0.1", port: port ?? 6379 }
      : { sentinels: sentinels.split(",").map(sentinelOf), name: master as string }),
  };
  return { isCluster: args.has("cluster"), options };
}

function fromUrl(text: string): TargetOptions {
  // A password with a character that a URL cannot hold is the usual reason; it must not be shown.
  const expected =
    "expected an address such as redis://user:password@host:6379/0, with the database as its path, without ? and #, and with special characters in the password percent-encoded";
  const decoded = (part: string) => {
    try {
      return decodeURIComponent(part);
    } catch {
      throw new UsageError(`--url or REDIS_URL: ${expected}`);
    }
  };
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const [, db] = /^\/?(\d{0,9})$/.exec(url?.pathname ?? "") ?? [];
  if (
    url === undefined ||
    db === undefined ||
    !["redis:", "rediss:"].includes(url.protocol) ||
    url.hostname === "" ||
    // A client would obey ?db=5, and a database that is ignored is the wrong one.
    /[?#]/.test(text)
  ) {
    throw new UsageError(`--url or REDIS_URL: ${expected}`);
  }
  return {
    host: url.hostname.replace(/^\[(.*)\]$/, "$1"),
    port: url.port === "" ? 6379 : Number(url.port),
    ...(url.username === "" ? {} : { username: decoded(url.username) }),
    ...(url.password === "" ? {} : { password: decoded(url.password) }),
    ...(db === "" ? {} : { db: Number(db) }),
    ...(url.protocol === "rediss:" ? { tls: {} } : {}),
  };
}

function sentinelOf(text: string): { host: string; port: number } {
  const [, host = "", port = "26379"] = /^(.+?)(?::(\d+))?$/.exec(text.trim()) ?? [];
  if (host === "") throw new UsageError("--sentinel: expected host:port,host:port");
  return { host, port: Number(port) };
}

function read(option: string, file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new UsageError(`--${option}: cannot read ${file} (${(error as Error).message})`);
  }
}
