/** Where pages of 0.2 are now: the old file, and the page with its heading, from the folder `docs`. */
export const moved: Readonly<Record<string, string>> = {
  "evidence/benchmarks.md": "evidence/neighbours.md#speed",
  "evidence/once-neighbours.md": "evidence/neighbours.md#once",
  "guide/demo.md": "README.md#the-demo",
  "guide/guests.md": "guide/once.md#guests",
  "guide/jobs.md": "guide/any-function.md#jobs-the-lock-alone",
  "guide/nest.md": "guide/express.md#nestjs",
  "guide/own-answers.md": "reference/responses.md#answers-in-your-own-format",
  "guide/shutdown.md": "operations/deploying.md#shutting-down",
  "guide/testing.md": "guide/express.md#testing-your-service",
  "internals/decisions.md": "internals/architecture.md#decisions-and-what-was-tried-and-left",
  "internals/ioredis.md": "internals/clients.md#ioredis",
  "internals/node-redis.md": "internals/clients.md#node-redis",
  "operations/permissions.md": "operations/redis.md#permissions",
  "operations/personal-data.md": "operations/stored-data.md#personal-data",
  "operations/records.md": "operations/stored-data.md",
  "operations/several-servers.md": "operations/deploying.md",
  "operations/sizing.md": "operations/stored-data.md#a-larger-shop",
  "operations/upgrading.md": "operations/deploying.md#upgrading",
  "reference/channels.md": "operations/observing.md#channels",
  "reference/store.md": "reference/options.md#a-store-of-your-own",
};

/** A page that sends its reader on, without a script. */
export function redirectTo(address: string): string {
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<link rel="icon" href="data:,">
<title>This page has moved</title>
<meta http-equiv="refresh" content="0; url=${address}">
<link rel="canonical" href="${address}">
<p>This page has moved: <a href="${address}">${address}</a></p>
</html>
`;
}
