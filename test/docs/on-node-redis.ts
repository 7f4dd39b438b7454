/**
 * A quick start with node-redis in the place of ioredis: with the code of its comments `or:`, each in
 * the place of the code in front of it or of the line above.
 */
export function onNodeRedis(code: string): string {
  const replaced = code
    .replace(/^.* \/\/ or: (.*)$/gm, "$1")
    .replace(/^.*\n\/\/ or: (.*)$/gm, "$1");
  if (/ioredis|new Redis\b/.test(replaced))
    throw new Error(`this is left of ioredis:\n${replaced}`);
  return replaced;
}
