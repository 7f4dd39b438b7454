import { forget, idOf } from "./ids.ts";

/** The options of {@link protectForm}. */
export interface ProtectFormOptions {
  /** Which order this is, as in `submitOnce`. @defaultValue the path of the form's `action` */
  readonly name?: string | undefined;
  /** The name of the field with the id. @defaultValue `"submissionId"` */
  readonly field?: string | undefined;
}

/** `HTMLFormElement`, where the types of the DOM are loaded. */
export type ProtectableForm = typeof globalThis extends { HTMLFormElement: { prototype: infer F } }
  ? F
  : // biome-ignore lint/suspicious/noExplicitAny: servers have no types of the DOM.
    any;

/**
 * Puts an id into the form, unless the server has, and lets one submit through at a time: the form is
 * `aria-busy` and its button disabled until the page is shown again, the submit was prevented, or 30 s
 * have passed. Reload and back keep the id, and a new visit of the page makes a new one.
 * @returns a function that takes it off.
 */
export function protectForm(form: ProtectableForm, options: ProtectFormOptions = {}): () => void {
  const page = form.ownerDocument;
  const field = options.field ?? "submissionId";
  const given = form.elements.namedItem(field) as { value: string } | null;
  const added = page.createElement("input");
  if (!given) form.append(Object.assign(added, { type: "hidden", name: field }));
  if (!given?.value) {
    const action = form.getAttribute("action") || page.URL;
    const name = options.name ?? new URL(action, page.baseURI).pathname;
    const [visit] = page.defaultView?.performance.getEntriesByType("navigation") ?? [];
    // A form's answer is another page: only the customer's return says that it is the same order.
    if (!/reload|back/.test(visit?.toJSON().type)) forget(name);
    (given ?? added).value = idOf(name);
  }
  let button: { disabled: boolean } | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const giveBack = () => {
    timer = clearTimeout(timer) as undefined;
    form.removeAttribute("aria-busy");
    if (button) button.disabled = false;
    button = null;
  };
  const onSubmit = (event: Event & { readonly submitter?: unknown }) => {
    if (timer !== undefined) {
      event.preventDefault();
      return event.stopImmediatePropagation();
    }
    form.setAttribute("aria-busy", "true");
    // Later: other listeners may prevent it, and a disabled button is not sent.
    timer = setTimeout(() => {
      if (event.defaultPrevented) return giveBack();
      button = event.submitter as typeof button;
      if (button) button.disabled = true;
      // A download and 204 show no page, nor does a customer who stops it.
      timer = setTimeout(giveBack, 30_000);
    });
  };
  form.addEventListener("submit", onSubmit, { capture: true });
  page.defaultView?.addEventListener("pageshow", giveBack);
  return () => {
    form.removeEventListener("submit", onSubmit, { capture: true });
    page.defaultView?.removeEventListener("pageshow", giveBack);
    giveBack();
    added.remove();
  };
}
