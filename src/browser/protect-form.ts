import { FORM_BUSY_MS } from "./bounds.ts";
import { digestOf, forget, idOf, keep, kept, owners, protections } from "./ids.ts";

/** Names of fields that are filled anew: what is ordered does not depend on them. */
const TOKENS = /[cx]srf|token\b|a[lp]tcha|turnsti|nonce/i;

/** The options of {@link protectForm}. */
export interface ProtectFormOptions {
  /**
   * The name of the order.
   * @defaultValue the page, the form's `action`, and its place among the forms with that action
   */
  readonly name?: string | undefined;
  /** The name of the field with the id. @defaultValue `"submissionId"` */
  readonly field?: string | undefined;
}

/** A function that takes the protection off. */
export interface FormProtection {
  (): void;
  /** Puts another id into the form: the next submit is another order. */
  renew(): void;
}

/** `HTMLFormElement`, where the types of the DOM are loaded. */
export type ProtectableForm = typeof globalThis extends { HTMLFormElement: { prototype: infer F } }
  ? F
  : // biome-ignore lint/suspicious/noExplicitAny: servers have no types of the DOM.
    any;

// biome-ignore lint/suspicious/noExplicitAny: servers have no types of the DOM.
type Submit = Event & { readonly submitter?: any };
// biome-ignore lint/suspicious/noExplicitAny: servers have no types of the DOM.
declare const document: any, addEventListener: any, removeEventListener: any;

/**
 * Puts an id into the form, unless the server has, and lets one submit through at a time: the form
 * is `aria-busy` and the pressed button disabled until the page is shown again or 30 s have passed.
 * The id belongs to this element and the content that it sends. Reload and back keep the id. A new
 * visit, another form, other content, or protecting a form again after it was sent means another id.
 * @returns a function that takes the protection off, and has `renew()`.
 */
export function protectForm(
  form: ProtectableForm,
  { field = "submissionId", name: given }: ProtectFormOptions = {},
): FormProtection {
  // Whether the form was sent since the page was shown: protecting it again then means another
  // order.
  let isSpent = protections.get(form)?.();
  // A field named "append" would hide the form's method, so call this input's methods on the form.
  const made = document.createElement("input");
  made.type = "hidden";
  made.name = field;
  const attribute = (name: string) => made.getAttribute.call(form, name);
  const url = document.URL.split("#")[0];
  const action = attribute("action");
  // Forms with another action, such as a question about cookies, may be there at one visit only.
  const alike = [...document.forms].filter(
    (each) => made.getAttribute.call(each, "action") === action,
  );
  const name = given ?? `${url} ${action} ${alike.indexOf(form)}`;
  // biome-ignore lint/suspicious/noExplicitAny: servers have no types of the DOM.
  const visit: any = performance.getEntriesByType?.("navigation" as never)[0];
  // A form that was loaded anew keeps its id only if the load was a reload or a return. Compare the
  // URL as well: a router shows other pages in a document that was reloaded once.
  const isReturn = /load|back/.test(visit?.type) && visit.name.split("#")[0] === url;
  /** Returns the field with the id. The page may have rendered the form's fields anew. */
  const filled = () => {
    let input = made.querySelector.call(form, `[name="${field}"]`);
    if (!input) {
      made.value = "";
      input = made;
      made.append.call(form, made);
    }
    if (!input.value) {
      const owner = owners.get(kept(name) as string);
      if (owner ? isSpent || owner.deref() !== form : !isReturn) forget(name);
      isSpent = false;
      input.value = idOf(name);
      // Note the id itself, so that it is known for this script's own wherever it is found.
      keep(input.value, name);
    }
    // Over a reload and Back, Firefox keeps an id that this script has put into the server's field.
    if (kept(input.value)) owners.set(input.value, new WeakRef(form));
    return input;
  };
  // `form.submit()` and `new FormData(form)` in a script fire `formdata`, too.
  // biome-ignore lint/suspicious/noExplicitAny: servers have no types of the DOM.
  const onFormData = ({ formData }: any) => {
    let id = filled().value;
    if (owners.has(id)) {
      // A prerendered page has lost what it has stored once it is shown.
      keep(name, id);
      const submitter = event?.submitter;
      let content = submitter?.getAttribute("formaction") ?? `${action}`;
      for (const [key, value] of formData) {
        // An image that is a button sends the place of the click, which is not the order's content.
        const isPlace = submitter?.type === "image" && /\b[xy]$/.test(key);
        if (key !== field && !TOKENS.test(key)) {
          // A field without a file has the time of the click.
          const changedAt = value.name && value.lastModified;
          content += JSON.stringify([key, isPlace || value, value.size, value.name, changedAt]);
        }
      }
      id += `~${digestOf(content)}`;
    }
    formData.set(field, id);
  };

  let event: Submit | null | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let undo: (() => void) | null | undefined;
  const giveBack = (shown?: unknown) => {
    clearTimeout(timer);
    isSpent &&= !shown;
    undo?.();
    undo = event = null;
  };
  const onSubmit = (next: Submit) => {
    const submitter = next.submitter;
    if (/dialog/i.test(submitter?.formMethod || attribute("method"))) return;
    // Stop a second submit, unless the first was prevented, as by a validator that submits again.
    if (event && !event.defaultPrevented) {
      next.preventDefault();
      return next.stopImmediatePropagation();
    }
    event = next;
    // Fill the field now, because later submit listeners may read it.
    filled();
    isSpent = true;
    // Listen now, not in the timer: a page cached before its timer would stop clicks after Back.
    addEventListener("pageshow", giveBack);
    // Disable the button later: a listener may prevent the submit. A disabled button is not sent.
    timer = setTimeout(() => {
      if (next.defaultPrevented) {
        // A validator may have submitted again, and that submit needs the listener.
        if (event === next) removeEventListener("pageshow", giveBack);
        return;
      }
      const focused = document.activeElement;
      const ariaBusy = attribute("aria-busy");
      const button = submitter ?? {};
      const disabled = button.disabled;
      Reflect.set(made, "ariaBusy", true, form);
      button.disabled = true;
      undo = () => {
        Reflect.set(made, "ariaBusy", ariaBusy, form);
        button.disabled = disabled;
        if (!document.querySelector(":focus")) focused.focus();
      };
      timer = setTimeout(giveBack, FORM_BUSY_MS);
    });
  };

  made.addEventListener.call(form, "submit", onSubmit, true);
  made.addEventListener.call(form, "formdata", onFormData);
  const protection = () => {
    // Not by an AbortSignal: Angular's zone.js before 0.14.3 does not see it, and would add no
    // listener to this form again.
    made.removeEventListener.call(form, "submit", onSubmit, true);
    made.removeEventListener.call(form, "formdata", onFormData);
    giveBack();
    made.remove();
    return isSpent;
  };
  protection.renew = () => {
    forget(name);
    filled().value = "";
    filled();
  };
  protections.set(form, protection);
  filled();
  return protection;
}
