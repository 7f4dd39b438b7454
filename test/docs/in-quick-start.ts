import { page } from "./page.ts";

interface Quick {
  readonly before?: string;
  /** Code between the recipe and `listen`. */
  readonly after?: string;
}

const userId = 'const userId = (req: express.Request) => req.get("x-user-id");';

/** The first line of what a recipe replaces: guard and route. */
const ofGuard = /^const guard = /m;

const starts = {
  express: {
    code: page("README.md").blockUnder("Quick start", "js"),
    from: ofGuard,
    to: /^const server = /m,
    parser: `const app = express();
app.use(express.json(), express.urlencoded({ extended: false }));
${userId}`,
  },
  koa: {
    code: page("docs/guide/koa.md")
      .blockUnder("Quick start", "js")
      .replace(/^const app = .*\n/m, ""),
    from: ofGuard,
    to: /^const server = /m,
    parser: "const app = new Koa().use(bodyParser());",
  },
  fastify: {
    code: page("docs/guide/fastify.md").blockUnder("Quick start", "js"),
    from: ofGuard,
    to: /^await app\.listen/m,
    parser: "",
  },
  fetch: {
    code: page("docs/guide/fetch.md").blockUnder("Hono"),
    from: ofGuard,
    to: /^const server = /m,
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
  // It stands behind the guard, of which it knows whether records are tried.
  const [check = ""] = /^await lock\.check\(.*/m.exec(code.slice(start, end)) ?? [];
  return [code.slice(0, start), parser, before, recipe, after, check, code.slice(end)].join("\n");
}

/** A quick start with node-redis in the place of ioredis, as the guide on Express says. */
export function onNodeRedis(code: string): string {
  const [from = "", , ...client] = page("docs/guide/express.md")
    .blockUnder("With node-redis")
    .trim()
    .split("\n");
  const replaced = code
    .replace(/^import \{ Redis \} from "ioredis";$/m, from)
    .replace(/^const redis = .*$/m, client.join("\n"));
  const isLeft = /ioredis|new Redis\b/.test(replaced);
  if (isLeft) throw new Error(`this still uses ioredis:\n${replaced}`);
  return replaced;
}
