/** The connect time-out of a second client, in ms: at most 1 s, because callers wait already. */
export function connectTimeoutOf(given: number | undefined): number {
  return Math.min(given ?? 1_000, 1_000);
}

export function pauseBeforeConnect(retries: number): number {
  return Math.min(50 * (retries + 1), 500);
}

export interface Address {
  readonly host?: string | undefined;
  readonly port?: number | string | undefined;
}

export function listed(nodes: readonly (Address | string | number)[] = []): string {
  const [first, ...others] = nodes.map(hostAndPort).filter((address) => address !== undefined);
  if (first === undefined) return "";
  return ` at ${first}${others.length === 0 ? "" : ` and ${others.length} more`}`;
}

export function hostAndPort(node: Address | string | number | undefined): string | undefined {
  if (typeof node === "number") return `127.0.0.1:${node}`;
  if (typeof node === "string")
    return URL.canParse(node) ? new URL(node).host || undefined : undefined;
  if (node?.host === undefined) return undefined;
  const host = node.host.includes(":") ? `[${node.host}]` : node.host;
  return `${host}:${node.port ?? 6379}`;
}
