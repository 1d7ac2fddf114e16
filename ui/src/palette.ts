// What a map is drawn with: where on it one looks, and the colours of the page.

import { HUES } from "./fleet";

export interface View {
  x: number;
  y: number;
  scale: number;
}

export interface Palette {
  ink: string;
  faint: string;
  line: string;
  paper: string;
  accent: string;
  good: string;
  bad: string;
  lit: string;
  hues: string[];
  fill: Record<string, string>;
  mark: Record<string, string>;
}

export function paletteOf(element: Element, states: string[]): Palette {
  const style = getComputedStyle(element);
  const value = (name: string) => style.getPropertyValue(name).trim();
  const fill: Record<string, string> = {}, mark: Record<string, string> = {};
  for (const state of states) {
    fill[state] = value(`--state-${state}`) || "#888";
    mark[state] = value(`--mark-${state}`) || "#000";
  }
  return {
    ink: value("--ink"), faint: value("--faint"), line: value("--line"), paper: value("--paper"),
    accent: value("--accent"), good: value("--good"), bad: value("--bad"), lit: value("--lit"),
    hues: Array.from({ length: HUES }, (_, at) => value(`--hue-${at}`)), fill, mark,
  };
}
