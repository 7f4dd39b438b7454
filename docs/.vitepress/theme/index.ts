import type { Theme } from "vitepress";
// With the fonts of the reader's system.
import DefaultTheme from "vitepress/theme-without-fonts";
import "./style.css";

const theme: Theme = { extends: DefaultTheme };
export default theme;
