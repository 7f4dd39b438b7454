import { copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { type DefaultTheme, defineConfig } from "vitepress";
import { forgeMarkdown, slugify } from "./markdown.ts";
import { apiSidebar, type Entry, manualSidebar, ROOT, routeOf } from "./pages.ts";

const {
  GITHUB_SERVER_URL: server = "https://github.com",
  GITHUB_REPOSITORY: repository,
  GITHUB_SHA: commit = "main",
  SITE_BASE = "/",
} = process.env;
const base = SITE_BASE.endsWith("/") ? SITE_BASE : `${SITE_BASE}/`;
// The repository does not know its address. Without one, links to sources are plain text.
const address = repository && `${server}/${repository}`;
const attachments = new Set<string>();

const icon =
  "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'>" +
  "<path d='M10 15v-4a6 6 0 0 1 12 0v4' fill='none' stroke='%231a7f37' stroke-width='3'/>" +
  "<rect x='6' y='14' width='20' height='14' rx='3' fill='%231a7f37'/></svg>";

export default defineConfig({
  title: "submit-lock",
  description: "One user, one order at a time: middleware for Node on a Redis lock.",
  lang: "en",
  base,
  head: [["link", { rel: "icon", href: `data:image/svg+xml,${icon}` }]],
  // The pages are where a forge shows them, so that their links and pictures are the same.
  srcDir: "..",
  srcExclude: ["{bench,coverage,examples,src,test}/**/!(results).md"],
  rewrites: routeOf,
  markdown: {
    anchor: { slugify },
    attrs: { disable: true },
    languageAlias: { cjs: "js" },
    theme: { light: "github-light-high-contrast", dark: "github-dark-high-contrast" },
    config: (md) => forgeMarkdown(md, address && `${address}/blob/${commit}`, attachments),
  },
  vite: {
    plugins: [
      {
        // The pages are outside of the folder that has Vue, and what they become is inside.
        name: "vue-of-the-site",
        enforce: "pre",
        resolveId: (id, _from, { ssr }) =>
          ssr && /^vue(\/|$)/.test(id) ? { id, external: true } : undefined,
      },
    ],
    // Pictures stay files, which browsers keep.
    build: { assetsInlineLimit: 0, chunkSizeWarningLimit: 4_096 },
  },
  themeConfig: {
    nav: [
      { text: "Manual", link: "/manual", activeMatch: "^/(?!api/)." },
      { text: "API", link: "/api/", activeMatch: "^/api/" },
      ...(address ? [{ text: "Source", link: address }] : []),
    ],
    sidebar: {
      "/api/": apiSidebar().map((entry) => item(entry, { collapsed: true })),
      "/": manualSidebar().map((entry) => item(entry)),
    },
    outline: { level: [2, 3] },
    search: {
      provider: "local",
      options: {
        miniSearch: {
          searchOptions: {
            // A page of the manual explains the name that a page of the API has as its title.
            boostDocument: (id: string) => (/\/api\//.test(id) ? 0.1 : 1),
          },
        },
      },
    },
  },
  buildEnd({ outDir }) {
    for (const file of attachments) {
      const target = join(outDir, routeOf(file));
      mkdirSync(dirname(target), { recursive: true });
      copyFileSync(join(ROOT, file), target);
    }
  },
});

function item(entry: Entry, { collapsed }: { collapsed?: true } = {}): DefaultTheme.SidebarItem {
  const { text, file, items } = entry;
  return {
    text,
    ...(file && {
      link: `/${routeOf(file)
        .replace(/(^|\/)index\.md$/, "$1")
        .replace(/\.md$/, "")}`,
    }),
    ...(items && { items: items.map((each) => item(each)) }),
    ...(collapsed && { collapsed }),
  };
}
