import { page } from "./page.ts";

interface Quick {
  /** Code between the application and the recipe. */
  readonly before?: string;
  /** Code between the recipe and `listen`. */
  readonly after?: string;
}

const starts = {
  express: {
    code: page("README.md").blockUnder("Quick start"),
    from: /^const guard = .*$/m,
    to: /^app\.listen/m,
    parser: "app.use(express.json(), express.urlencoded({ extended: false }));",
  },
  koa: {
    code: page("README.md")
      .blockUnder("Koa")
      .replace(/^new Koa\(\).*\.listen/m, "app.listen"),
    from: /^const router = [\s\S]*?(?=^const guard)/m,
    to: /^app\.listen/m,
    parser: `import { bodyParser } from "@koa/bodyparser";\nconst app = new Koa().use(bodyParser());`,
  },
  fastify: {
    code: page("docs/guide/fastify.md").blockUnder("Quick start"),
    from: /^const guard = .*$/m,
    to: /^await app\.listen/m,
    parser: "",
  },
  fetch: {
    code: page("docs/guide/fetch.md").blockUnder("Hono"),
    from: /^const guard = .*$/m,
    to: /^serve\(/m,
    parser: "const app = new Hono();",
  },
};

/** A quick start with a recipe in the place of its guard and route, behind a body parser. */
export function inQuickStart(
  recipe: string,
  framework: keyof typeof starts = "express",
  { before = "", after = "" }: Quick = {},
): string {
  const { code, from, parser, to } = starts[framework];
  const [start, end] = [code.search(from), code.search(to)];
  if (start < 0 || end < start) throw new Error(`the quick start of ${framework} has changed`);
  const userId = `const userId = (req: express.Request) => req.get("x-user-id");`;
  const parts = [code.slice(0, start), parser, framework === "express" ? userId : "", before];
  return [...parts, recipe, after, code.slice(end)].join("\n");
}

/** The quick start on Koa with the code for an application without a router. */
export function koaWithoutRouter(): string {
  const readme = page("README.md").blockUnder("Koa");
  const guard = /^const guard = .*$/m.exec(readme)?.[0] ?? "";
  const mounted = page("docs/guide/koa.md").blockUnder("Without a router");
  return readme
    .replace(/^import Router .*\n/m, "")
    .replace(/^const router = [\s\S]*?^new Koa\(\).*\.listen/m, () =>
      ["const app = new Koa();", guard, `${mounted}app.listen`].join("\n"),
    );
}

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
