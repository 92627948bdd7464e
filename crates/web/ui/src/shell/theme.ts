// Dark or light: as the system says, unless the reader chose.

import { createSignal } from "solid-js";

const KEY = "dioptra-theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const chosen = (): boolean | null => {
  const kept = localStorage.getItem(KEY);
  return kept === "dark" ? true : kept === "light" ? false : null;
};
const [isDark, setDark] = createSignal(chosen() ?? system.matches);

export { isDark };

function show(dark: boolean): void {
  setDark(dark);
  document.documentElement.classList.toggle("dark", dark);
}

/** Shows the theme, and follows the system as long as the reader has not chosen. */
export function followTheme(): void {
  show(isDark());
  system.addEventListener("change", () => { if (chosen() === null) show(system.matches); });
}

/** Switches to the other theme. Where that is the system's own, the page follows the system again. */
export function toggleTheme(): void {
  const dark = !isDark();
  if (dark === system.matches) localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, dark ? "dark" : "light");
  show(dark);
}

/** The value of a colour of the style sheet, for drawing on canvas. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
