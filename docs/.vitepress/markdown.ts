/** The Markdown that a forge shows, for VitePress: its links, pictures, diagrams and angle brackets. */
import { existsSync } from "node:fs";
import { dirname, join, posix, relative } from "node:path";
import { renderMermaidSVG } from "beautiful-mermaid";
import type { MarkdownRenderer } from "vitepress";
import { pages, ROOT, routeOf } from "./pages.ts";

type Token = ReturnType<MarkdownRenderer["parse"]>[number];

/** The anchors that a forge makes of headings. `test/docs/page.ts` checks links by the same rule. */
export function slugify(heading: string): string {
  const text = heading.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, "");
  return text.replaceAll(" ", "-");
}

/**
 * @param forge the address of a file of this repository ends with the file's path; `undefined` if
 * the repository has no address.
 * @param attachments receives every linked file of the manual that is not a page.
 */
export function forgeMarkdown(
  md: MarkdownRenderer,
  forge: string | undefined,
  attachments: Set<string>,
): void {
  const known = new Set(pages());
  // Words such as `:key:` are parts of Redis keys.
  md.disable("emoji");

  md.core.ruler.before("normalize", "pictures", (state) => {
    state.src = state.src.replace(/<picture>.*?<\/picture>/gs, picture);
  });

  md.core.ruler.push("forge", (state) => {
    const page = relative(ROOT, state.env.realPath ?? state.env.path).replaceAll("\\", "/");
    for (const token of state.tokens) {
      if (token.type === "html_block") token.content = html(token.content);
      for (const child of token.children ?? []) {
        if (child.type === "html_inline") child.content = html(child.content);
      }
      resolveLinks(token.children ?? [], page);
    }
    withoutEmptyHeaders(state.tokens);
  });

  function resolveLinks(tokens: Token[], page: string): void {
    let dropped = false;
    for (const token of tokens) {
      if (token.type === "link_open") {
        const target = resolve(token.attrGet("href") ?? "", page);
        dropped = target === undefined;
        if (target !== undefined) token.attrSet("href", target);
      }
      // Links are not nested, so the next end is the end of this one.
      if (dropped && /^link_/.test(token.type)) asText(token);
    }
  }

  /** @returns where a link of the page leads on the site, or `undefined` if nowhere. */
  function resolve(href: string, page: string): string | undefined {
    if (/^([a-z]+:|#)/.test(href)) return href;
    const [path = "", anchor] = href.split("#");
    const file = posix.join(dirname(page), decodeURI(path)).replace(/\/$/, "");
    const hash = anchor === undefined ? "" : `#${anchor}`;
    if (known.has(file)) return `/${routeOf(file)}${hash}`;
    if (!existsSync(join(ROOT, file)))
      throw new Error(`${page} links ${href}, which does not exist`);
    if (file.startsWith("docs/")) {
      attachments.add(file);
      return `/${routeOf(file)}`;
    }
    return forge && `${forge}/${file}`;
  }

  // Vue would read a template's expression in the text.
  const text = md.renderer.rules.text;
  if (text === undefined) throw new Error("this VitePress has no rule for text");
  md.renderer.rules.text = (...args) => text(...args).replaceAll("{{", "&#123;&#123;");

  const fence = md.renderer.rules.fence;
  if (fence === undefined) throw new Error("this VitePress has no rule for code");
  md.renderer.rules.fence = (...args) => {
    const [tokens, index] = args;
    const { info, content } = tokens[index] as Token;
    if (info.trim() !== "mermaid") return fence(...args);
    return diagram(content);
  };
}

/** Drawn here, with the colours of the site's scheme: the reader's browser runs no code for it. */
function diagram(source: string): string {
  const svg = renderMermaidSVG(source, {
    bg: "var(--vp-c-bg)",
    fg: "var(--vp-c-text-1)",
    muted: "var(--vp-c-text-2)",
    font: "system-ui",
    transparent: true,
  });
  // No reader's browser asks another host for a font.
  const own = svg.replace(/@import url\([^)]*\);/g, "");
  // Vue leaves out the style of an SVG in a template.
  const text = encodeURIComponent(own).replaceAll("'", "%27");
  return `<div class="diagram" tabindex="0" v-html="decodeURIComponent('${text}')"></div>\n`;
}

/** The site's switch chooses the picture, and the system's setting does not. */
function picture(element: string): string {
  const dark = /srcset="([^"]+)"/.exec(element)?.[1];
  const light = / src="([^"]+)"/.exec(element)?.[1];
  const alt = / alt="([^"]*)"/.exec(element)?.[1] ?? "";
  if (dark === undefined || light === undefined) {
    throw new Error(`not a picture for both colour schemes: ${element}`);
  }
  const image = (scheme: string, path: string) =>
    `<img class="only-${scheme}" alt="${alt}" src="./${path}">`;
  return image("light", light) + image("dark", dark);
}

/** The few elements that pages use. Anything else in angle brackets is text, such as `<id>`. */
function html(content: string): string {
  if (/^\s*(<\/?(img|br|details|summary)\b|<!--)/.test(content)) return content;
  return content.replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("{{", "&#123;&#123;");
}

/** A reader of the screen would announce a header without a name for each cell of its column. */
function withoutEmptyHeaders(tokens: Token[]): void {
  tokens.forEach((token, index) => {
    if (token.type !== "th_open" || tokens[index + 1]?.content !== "") return;
    token.tag = "td";
    (tokens[index + 2] as Token).tag = "td";
  });
}

function asText(token: Token): void {
  token.type = "text";
  token.content = "";
}
