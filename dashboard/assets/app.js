// What a page gains by a script: colours that were chosen, keys, readings on charts, and following what happens. Every page is whole
// without it. Texts are set as text and elements are moved, never made of strings, so that no name of others becomes markup.
"use strict";
(() => {
  const root = document.documentElement;
  const THEMES = ["system", "light", "dark"];
  const stored = () => { try { return localStorage.getItem("evenkeel-theme") || "system"; } catch { return "system"; } };
  const paint = (theme) => { if (theme === "system") delete root.dataset.theme; else root.dataset.theme = theme; };
  paint(stored());

  const nextTheme = () => {
    const theme = THEMES[(THEMES.indexOf(stored()) + 1) % THEMES.length];
    try { localStorage.setItem("evenkeel-theme", theme); } catch { /* It holds for this page. */ }
    paint(theme);
    nameTheme(theme);
  };
  const nameTheme = (theme) => {
    const button = document.getElementById("theme");
    if (!button) return;
    const words = { system: "as the system", light: "light", dark: "dark" };
    button.hidden = false;
    button.textContent = { system: "◐", light: "☀", dark: "☾" }[theme];
    button.setAttribute("aria-label", `Colours: ${words[theme]}`);
    button.title = `Colours: ${words[theme]} (t)`;
  };

  // Amounts as the server writes them.
  const rounded = (v) => (v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2)).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
  const amount = (resource, value) => {
    if (resource === "cpu") return value < 1000 ? `${value}m` : rounded(value / 1000);
    const units = ["B", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let at = 0;
    while (value >= 1024 && at + 1 < units.length) { value /= 1024; at += 1; }
    return `${rounded(value)} ${units[at]}`;
  };
  const pad = (n) => String(n).padStart(2, "0");
  const clock = (ms) => {
    const d = new Date(ms);
    return `${d.getUTCFullYear()}-${pad(d.getUTCMonth() + 1)}-${pad(d.getUTCDate())} ${pad(d.getUTCHours())}:${pad(d.getUTCMinutes())}:${pad(d.getUTCSeconds())}`;
  };

  // The nearest value to the pointer, or by arrow keys.
  const charts = (within) => {
    for (const svg of within.querySelectorAll("svg[data-points]")) {
      const points = svg.dataset.points.split(",").filter(Boolean).map((p) => p.split(" ").map(Number));
      if (!points.length) continue;
      const span = Number(svg.dataset.span) || 1, from = Number(svg.dataset.from), resource = svg.dataset.chart;
      const cursor = svg.querySelector(".cursor"), out = svg.closest("figure").querySelector(".reading");
      const usual = out.textContent;
      let at = points.length - 1;
      const show = (index) => {
        at = Math.max(0, Math.min(points.length - 1, index));
        const [time, value] = points[at], x = (time / span) * 600;
        cursor.setAttribute("x1", x); cursor.setAttribute("x2", x);
        out.textContent = `${amount(resource, value)} at ${clock(from + time)} UTC`;
      };
      const hide = () => { cursor.setAttribute("x1", -9); cursor.setAttribute("x2", -9); out.textContent = usual; };
      svg.addEventListener("pointermove", (event) => {
        const box = svg.getBoundingClientRect(), time = ((event.clientX - box.left) / box.width) * span;
        let low = 0, high = points.length - 1;
        while (low < high) { const mid = (low + high) >> 1; if (points[mid][0] < time) low = mid + 1; else high = mid; }
        show(low > 0 && time - points[low - 1][0] < points[low][0] - time ? low - 1 : low);
      });
      svg.addEventListener("pointerleave", hide);
      svg.setAttribute("tabindex", "0");
      svg.addEventListener("blur", hide);
      svg.addEventListener("keydown", (event) => {
        if (event.key === "ArrowLeft") show(at - 1); else if (event.key === "ArrowRight") show(at + 1); else return;
        event.preventDefault();
      });
    }
  };

  let going = false;
  const keys = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog[open]")) return;
    if (going) {
      going = false;
      const link = [...document.querySelectorAll("nav a[data-key]")].find((a) => a.dataset.key === event.key);
      if (link) link.click();
      return;
    }
    if (event.key === "g") { going = true; setTimeout(() => { going = false; }, 1500); }
    else if (event.key === "/") { const search = document.getElementById("search"); if (search) { event.preventDefault(); search.focus(); search.select(); } }
    else if (event.key === "?") { const help = document.getElementById("help"); if (help) help.showModal(); }
    else if (event.key === "t") nextTheme();
  };

  // Fetches the page anew and changes the parts that differ, but none that somebody works in.
  let refreshed = Date.now(), refreshing = false;
  const refresh = async () => {
    const main = document.getElementById("main"), every = Number(main && main.dataset.refresh) * 1000;
    if (!every || refreshing || document.hidden || Date.now() - refreshed < every) return;
    refreshing = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", headers: { "X-Evenkeel": "refresh" } });
      if (!answer.ok || answer.redirected) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-part]")) {
        const fresh = page.getElementById(part.id);
        if (!fresh || fresh.textContent === part.textContent && fresh.querySelector("svg") === null) continue;
        if (part.contains(document.activeElement) || part.querySelector("details[open]") || part.matches(":hover") && part.querySelector("svg[data-points]")) continue;
        const scrolled = [...part.querySelectorAll(".scroll")].map((s) => s.scrollLeft);
        const adopted = document.adoptNode(fresh);
        part.replaceWith(adopted);
        adopted.querySelectorAll(".scroll").forEach((s, i) => { s.scrollLeft = scrolled[i] || 0; });
        charts(adopted);
      }
    } catch { /* The next time. */ } finally { refreshing = false; refreshed = Date.now(); }
  };

  const told = (text) => {
    let news;
    try { news = JSON.parse(text); } catch { return; }
    state(true);
    for (const element of document.querySelectorAll("[data-live]")) {
      const value = news.values && news.values[element.dataset.live];
      if (typeof value === "string" && element.textContent !== value) {
        element.textContent = value;
        element.classList.remove("changed");
        void element.offsetWidth;
        element.classList.add("changed");
      }
    }
    refresh();
  };
  const state = (on) => {
    const live = document.getElementById("live");
    if (!live) return;
    live.className = `live ${on ? "on" : "off"}`;
    const text = on ? "live" : "not live";
    if (live.textContent !== text) live.textContent = text;
  };

  // One stream for all tabs of a browser: the tab that holds the lock passes on what it is told. Where locks are not to be had (plain
  // text to another host) each tab has a stream of its own.
  const follow = () => {
    const live = document.getElementById("live");
    if (!live || !window.EventSource) return;
    const listen = (pass) => new Promise(() => {
      const source = new EventSource("/ui/live");
      source.addEventListener("news", (event) => { told(event.data); pass(event.data); });
      source.addEventListener("error", () => { state(false); pass(""); });
    });
    if (!navigator.locks || !window.BroadcastChannel) { listen(() => {}); return; }
    const channel = new BroadcastChannel("evenkeel-live");
    channel.addEventListener("message", (event) => { if (event.data) told(event.data); else state(false); });
    navigator.locks.request("evenkeel-live", () => listen((data) => channel.postMessage(data)));
  };

  addEventListener("DOMContentLoaded", () => {
    nameTheme(stored());
    const button = document.getElementById("theme");
    if (button) button.addEventListener("click", nextTheme);
    document.addEventListener("keydown", keys);
    charts(document);
    follow();
    const answer = document.getElementById("answer");
    if (answer) answer.focus({ preventScroll: false });
  });
})();
