/**
 * A quick start with node-redis in the place of ioredis: with the code of its comments `or:`, each in
 * the place of the code in front of it or of the line above.
 */
export function onNodeRedis(code: string): string {
  const replaced = code
    .replace(/^.* \/\/ or: (.*)$/gm, "$1")
    .replace(/^.*\n\/\/ or: (.*)$/gm, "$1");
  const isLeft = /ioredis|new Redis\b/.test(replaced);
  if (isLeft) throw new Error(`this still uses ioredis:\n${replaced}`);
  return replaced;
}
